"""Many small random choices from one block of numbers: a call of the generator costs more than the number it gives."""


def dice(rng, size):
    """A function `roll(n)` that gives a whole number from 0 to n - 1; it can be called `size` times.

    rng    NumPy Generator
    """
    take = rng.random(size).tolist().pop

    def roll(n):
        return int(take() * n)

    return roll


def pick(roll, items, count):
    """`count` different members of `items`, in random order."""
    rest = list(items)
    return [rest.pop(roll(len(rest))) for _ in range(count)]
