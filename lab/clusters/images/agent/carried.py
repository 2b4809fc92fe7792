def _carry() -> None:
    """Have what was brought along looked for after all that the image has."""
    import os
    import sys

    here = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    brought = (
        os.path.join(here, "lib", f"{sys.version_info[0]}.{sys.version_info[1]}"),
        os.path.join(here, "common"),
    )
    sys.path += [folder for folder in brought if folder not in sys.path]


_carry()
