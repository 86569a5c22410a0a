"""Tools of MCP servers. The only package that imports the library ``mcp``; see ``main.py``."""
