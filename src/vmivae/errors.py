"""Errors whose message is meant for the person who runs a stage."""


class UserError(Exception):
    """Something the user can mend: a parameter, a file, a missing set.

    The message is one line that names the key or file, the value, and what is accepted.
    Stages print it without a traceback and exit with code 2.
    """

    exit_code = 2


class ParameterError(UserError):
    """A value in params.yaml that is not accepted."""


class DataError(UserError):
    """A file or image set that cannot be read or does not fit the parameters."""


class NonFiniteError(UserError):
    """A loss, gradient or weight became NaN or infinite; says at which step."""

    exit_code = 3


class ImpossibleEstimateError(UserError):
    """An estimate lies more than four standard errors beyond what is possible."""

    exit_code = 3


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM has stopped the work.

    Args:
        signal: its number.
    """

    def __init__(self, signal: int) -> None:
        super().__init__()
        self.exit_code = 128 + signal
