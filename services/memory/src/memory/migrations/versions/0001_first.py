"""Tables and the turn API of the first version."""

from alembic import op

from memory.migrate import script

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create everything. There is no way back from the first version."""
    connection = op.get_bind()
    connection.exec_driver_sql("create extension if not exists vector")
    script(connection, "tables_0001.sql")
    script(connection, "turn_v1")
