"""A licence server to try ReserveAndNotify with: python licence_server.py --seats cad=2

GET / shows who has which seat, and the notifications.
"""

from __future__ import annotations

import argparse

from aiohttp import web


class LicenceServer:
    """Seats by product; ``held``: UIDs of pods by product; ``notified``: bound pods."""

    def __init__(self, seats: dict[str, int]) -> None:
        self.seats = seats
        self.held: dict[str, set[str]] = {product: set() for product in seats}
        self.notified: list[dict[str, str]] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_put("/seats/{product}/{uid}", self.grant)
        app.router.add_delete("/seats/{product}/{uid}", self.take_back)
        app.router.add_post("/bound", self.note)
        app.router.add_get("/", self.show)
        return app

    async def grant(self, request: web.Request) -> web.Response:
        product, uid = request.match_info["product"], request.match_info["uid"]
        if product not in self.seats:
            raise web.HTTPNotFound(text=f"there is no product {product}")
        held = self.held[product]
        if uid not in held and len(held) >= self.seats[product]:
            raise web.HTTPConflict(text=f"all {len(held)} seats of {product} are taken")
        held.add(uid)  # two requests grant one seat
        return web.json_response({"granted": True})

    async def take_back(self, request: web.Request) -> web.Response:
        self.held.get(request.match_info["product"], set()).discard(request.match_info["uid"])
        return web.Response(status=204)

    async def note(self, request: web.Request) -> web.Response:
        self.notified.append(await request.json())
        return web.Response(status=204)

    async def show(self, request: web.Request) -> web.Response:
        held = {product: sorted(uids) for product, uids in self.held.items()}
        return web.json_response({"seats": self.seats, "held": held, "notified": self.notified})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8700)
    parser.add_argument("--seats", nargs="+", default=["cad=2"], metavar="PRODUCT=NUMBER")
    options = parser.parse_args()
    pairs = (text.partition("=") for text in options.seats)
    server = LicenceServer({product: int(number) for product, _, number in pairs})
    web.run_app(server.app(), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
