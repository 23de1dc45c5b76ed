"""Text that UTF-8 can encode, as all that leaves the process has to be.

Python's strings may hold halves of surrogate pairs, which no encoding has: a plugin that reads
foreign bytes, or JSON with a broken escape, makes such a string without noticing.
"""


def to_valid_utf8(text: str) -> str:
    """Return the text with U+FFFD in place of each lone surrogate (Go's ``strings.ToValidUTF8``).

    Nearly all texts are returned as they are.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
