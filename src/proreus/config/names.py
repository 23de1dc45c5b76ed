"""Validates label keys, label values and names of extended resources.

The rules and texts are those of ``k8s.io/apimachinery/pkg/util/validation``. ``objects.selectors``
checks the same rules without reasons, faster, for objects that arrive by the million.
"""

import re
from collections.abc import Iterator

from proreus.config.field_errors import invalid

_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_KEY_CHARACTERS = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_KEY_RULE = (
    f"{_KEY_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_KEY}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '({_KEY})?')"
)
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_DNS_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', "
    f"regex used for validation is '{_DNS_SUBDOMAIN}')"
)
_QUOTA_PREFIX = "requests."


def label_key_errors(key: str) -> Iterator[str]:
    """Yield the errors of a label key (also called qualified name)."""
    prefix, slash, name = key.partition("/")
    if "/" in name:
        yield (
            f"a valid label key {_KEY_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return
    if not slash:
        name = prefix
    elif not prefix:
        yield "prefix part must be non-empty"
    else:
        if len(prefix.encode()) > 253:
            yield "prefix part must be no more than 253 bytes"
        if not re.fullmatch(_DNS_SUBDOMAIN, prefix):
            yield f"prefix part {_DNS_RULE}"
    if not name:
        yield "name part must be non-empty"
    elif len(name.encode()) > 63:
        yield "name part must be no more than 63 bytes"
    if not re.fullmatch(_KEY, name):
        yield f"name part {_KEY_RULE}"


def label_key_problems(path: str, key: str) -> Iterator[str]:
    """Yield the errors of a label key as those of the field at ``path``."""
    for problem in label_key_errors(key):
        yield invalid(path, key, problem)


def label_value_errors(value: str) -> Iterator[str]:
    """Yield the errors of a label value."""
    if len(value.encode()) > 63:
        yield "must be no more than 63 bytes"
    if value and not re.fullmatch(_KEY, value):
        yield _VALUE_RULE


def is_extended_resource(name: str) -> bool:
    """Return whether a resource name is outside Kubernetes' own domain."""
    native = "/" not in name or "kubernetes.io/" in name
    if native or name.startswith(_QUOTA_PREFIX):
        return False
    return not any(label_key_errors(_QUOTA_PREFIX + name))
