"""How the server learns means over clients: from open uploads, or from secure sums."""

from fedkge.server.sums.open import OpenSums
from fedkge.server.sums.secure import SecureSums
from fedkge.server.sums.sums import Final, Scores, Steps, Sums, Then, Training

__all__ = ["Final", "OpenSums", "Scores", "SecureSums", "Steps", "Sums", "Then", "Training"]
