"""The files of a conversation: every tool that touches them goes through ``files.Workspace``."""
