"""What NNI's advisors ask about trials."""


def multi_phase_enabled() -> bool:
    """Whether a trial may ask for parameters several times: never."""
    return False


def enable_multi_phase() -> None:
    """Raises RuntimeError: a trial asks for parameters once."""
    raise RuntimeError("Multi-phase trials are not supported. Let each trial ask for its parameters once.")
