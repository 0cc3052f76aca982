"""From the relay's journal to the record: who said what in which conversation, in the order of acceptance.

reading (what a call asked) → clients, side_calls (who calls, and whether it is talk at all)
answers (what came back) → recognising (which session, after which entry) → filing (the rows of many calls at once)
digester (how far it came, what waits for what) → process (where it runs)
"""
