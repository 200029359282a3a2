"""Who may do what, for every transport.

A front carries what it found to the one `Authoriser`, before it looks at anything else:

    credentials = [(name, value) for name, value in headers if name in CREDENTIAL_HEADERS]
    principal = authoriser.check(credentials, Action.INFERENCE, model_id)

Names are in lower case, and both are bytes, as ASGI has them; gRPC's metadata is encoded first. The
failures raised are those that every transport has in its table.
"""

from snoozeml.serving.auth.authoriser import Authoriser
from snoozeml.serving.auth.credentials import CREDENTIAL_HEADERS, Credentials
from snoozeml.serving.auth.principal import NOBODY, Action, Principal

__all__ = ["CREDENTIAL_HEADERS", "NOBODY", "Action", "Authoriser", "Credentials", "Principal"]
