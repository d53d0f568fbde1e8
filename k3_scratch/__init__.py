"""K3 from scratch: every part of Kimi K3, built in the open, and a miniature that is one."""

__version__ = "0.1.0"
