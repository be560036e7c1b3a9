"""The client: one class of all that the service can be asked."""

from advisor.client.launching import Launching
from advisor.client.managing import Managing
from advisor.client.recommending import Recommending
from advisor.client.recorded import Recorded


class Client(Recommending, Recorded, Launching, Managing):
    """A service, spoken to one request after the other; several threads may share it.

    Args:
        url: Such as `http://127.0.0.1:8765`; of a Unix socket `unix:/run/advisor.sock`.
        token: As `advisor tokens create` printed it; None: what may be done without.
        timeout_s: For each answer. What takes the service longer by nature gets that on top.
        verify: Whose certificate is trusted: True, those that the system trusts; a file, those in
            it; False, anyone's, so that anyone on the way can read the token.

    Raises:
        InputError: one of these cannot be used.

    Every method raises a `ClientError`: `ApiError` where the service refuses or fails,
    `UnreachableError`, `TooSlowError` or `AnswerError` where it gives no answer that can be used.
    """
