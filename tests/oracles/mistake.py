"""What a deliberate mistake is, and how it is planted into every model of the process and taken out again."""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch


@dataclass(frozen=True)
class Mistake:
    """name; what is wrong, in one line; the file of k3_scratch it would stand in; changes() -> what to replace."""

    name: str
    description: str
    where: str
    changes: object                              # () -> [(owner, attribute, what to put there)]

    @contextmanager
    def planted(self):
        """Inside `with`, every model of the process makes this mistake."""
        with ExitStack() as stack:
            for owner, attribute, wrong in self.changes():
                stack.enter_context(patch.object(owner, attribute, wrong))
            yield


MISTAKES = {}                                    # those that the logits show
UNSEEN = {}                                      # those that they do not show


def mistake(where, description, table=MISTAKES):
    """Enter the decorated function, which returns the changes, into the table under its own name."""
    def enter(changes):
        table[changes.__name__] = Mistake(changes.__name__, description, where, changes)
        return changes
    return enter
