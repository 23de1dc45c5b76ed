// Asks for two pods, by the types in schema.d.ts that openapi-typescript has generated.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const [, , baseUrl, token] = process.argv;
const client = createClient<paths>({
  baseUrl: baseUrl!,
  headers: { Authorization: `Bearer ${token}` },
});

const container = { name: "c", resources: { requests: { cpu: "100m" } } };
const item: components["schemas"]["PodItem"] = {
  pod: { metadata: { name: "web" }, spec: { containers: [container] } },
  count: 2,
};

const { data, error } = await client.POST(
  "/apis/scheduling.proreus.dev/v1alpha1/dryrunreviews",
  {
    body: {
      apiVersion: "scheduling.proreus.dev/v1alpha1",
      kind: "DryRunReview",
      spec: { pods: [item], bestNodes: 1 },
    },
  },
);
if (!data) throw new Error(JSON.stringify(error));
for (const pod of data.status?.pods ?? []) {
  console.log(pod.pod, pod.node ?? pod.message ?? "");
}
