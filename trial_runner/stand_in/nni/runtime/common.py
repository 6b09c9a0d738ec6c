"""What NNI's advisors ask about trials."""


def multi_phase_enabled() -> bool:
    """Whether a trial may ask for parameters several times: never."""
    return False
