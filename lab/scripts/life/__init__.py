"""The trainings of `make life`; each says what it does in lines of JSON (`told.py`)."""
