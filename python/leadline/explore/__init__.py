"""leadline explore: one capture over time, as a page on loopback.

queries.py builds each question as SQL, address.py reads the state of the page from its address, answers.py asks a held capture, marks.py
what happened besides, growth.py two windows; opening.py opens what takes a while. overview.py sums the pieces of a recorder, windows.py
opens windows of them as captures. app.py answers over HTTP, and static/ draws. Every number on the page is a sum that `leadline sql`
gives, too.
"""
