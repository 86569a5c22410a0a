"""What holds in the tables after any calls in any order (R4, R7-R9), told from the rows alone.

Answers must be written by ``final``, so that they name the messages they answer.
"""

from collections.abc import Sequence

from tests.integration.memory.rows import Rows

_ANSWERS = "select count(*) from outbound o where o.key = m.key and o.body->>'content' like"

CHECKS = {
    "a waiting message has an owner": """
        select 1 from mailbox join conversation c using (key)
        where state = 'waiting' and c.owner is null""",
    "outbound is numbered from 1 without gaps": """
        select 1 from (select seq, row_number() over (partition by key order by seq) as place
                       from outbound) o where seq <> place""",
    "each finished message is in exactly one first answer": f"""
        select 1 from mailbox m where state = 'done'
        and 1 <> ({_ANSWERS} 'final 1 %#' || m.seq || '#%')""",
    "no other message is in any answer": f"""
        select 1 from mailbox m where state <> 'done'
        and 0 < ({_ANSWERS} 'final %#' || m.seq || '#%')""",
    "only one turn is under way": """
        select 1 from mailbox where state = 'waiting' and begun_epoch is not null
        group by key having count(distinct begun_epoch) > 1""",
    "what is under way has its manifest": """
        select 1 from mailbox m where state = 'waiting' and begun_epoch is not null
        and not exists (select 1 from step s where s.key = m.key and s.run_id = '' and s.n = 0
            and s.body->'positions' @> jsonb_build_array(jsonb_build_object('seq', m.seq)))""",
}


def final(number: int, seqs: Sequence[int]) -> str:
    """The text of an answer to these messages."""
    return f"final {number} of {','.join(f'#{seq}#' for seq in seqs)}"


async def broken(rows: Rows) -> list[str]:
    """Names of the guarantees that do not hold."""
    found = {name: await rows.connection.fetchval(query) for name, query in CHECKS.items()}
    return [name for name, violated in found.items() if violated]
