"""Bringing in what people have: quilt series, mailboxes, branches, single diffs."""
