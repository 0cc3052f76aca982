"""Digest of the relay's journal: relayed calls become sessions, entries and exchanges, in order of acceptance.

requests, side_calls (one request alone) → calls (the values: request, answer, position, plan)
recognisers (which session a request continues, after which entry; `sessions.RECOGNISERS` is the order)
planning (what each call adds) → filing (rows of many calls at once)
ordering (which call waits for which, also calls of other hosts)
digester (reads the journal, files, keeps its position) → process (where it runs)
"""
