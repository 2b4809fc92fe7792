"""Random kills and faults: nothing may be lost, and the books must balance."""
