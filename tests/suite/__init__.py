"""What the suite as a whole needs: the sample of a plain run, and several cases in one test."""
