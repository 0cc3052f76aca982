"""Faults of the relay, with real processes under load: its database, its disk, its worker, both of its ends.

Every call asks a question of its own and is answered with words of its own, so what stands in the record afterwards can
be compared with what the clients were told: nothing acknowledged is lost, nothing is doubled, and every call that was
accepted says how it ended.
"""
