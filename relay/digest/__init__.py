"""From the relay's journal to the record: who said what in which conversation, in the order of acceptance.

reading (what a call asked) → clients, side_calls (who calls, and whether it is talk at all)
answers (what came back), prefills (as the rest of what the client had begun itself)
recognising (which session, after which entry) → filing (the rows of many calls at once)
waiting (what waits for what), neighbours (what other hosts still have)
digester (how far it came) → process (where it runs)
"""
