"""Each operation's row, which has all that the rest of penstock has to know of it, and the table of the rows."""
