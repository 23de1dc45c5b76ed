"""What all tests need."""

import asyncio

# Asked for "the" event loop before there is one, Python 3.11 makes one; pytest-asyncio asks, and
# nobody closes what it gets. Said beforehand that there is none, it makes none.
asyncio.set_event_loop(None)
