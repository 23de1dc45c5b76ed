// Says when a page is no longer live: its parts are fetched again every few seconds by htmx.
"use strict";
(() => {
  const stale = document.getElementById("stale");
  const texts = {
    401: "You are signed out. Load the page again to sign in.",
    403: "You are signed out, or may not see this any more. Load the page again to sign in.",
    404: "It is gone. The page shows its last state.",
  };
  function say(text) {
    // Only what changed: a screen reader reads each change of it.
    if (stale.textContent === text) return;
    stale.textContent = text;
    stale.hidden = text === "";
  }
  const failed = (event) =>
    say(texts[event.detail.xhr?.status] ?? "The connection is lost; trying again. The page shows the last state.");
  document.addEventListener("htmx:responseError", failed);
  document.addEventListener("htmx:sendError", failed);
  document.addEventListener("htmx:afterSwap", () => say(""));
})();
