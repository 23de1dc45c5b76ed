"""The bodies of schemathesis, with integers as clients write them: a Go server refuses 1.0."""

import schemathesis


@schemathesis.hook
def map_body(context, body):
    """Return a body whose integers have no fraction."""
    return whole(body)


def whole(value):
    """Return plain data with integral floats as integers."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
