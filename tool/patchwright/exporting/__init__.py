"""Giving the series to others: as a quilt folder, a mailbox, a branch, patch files."""
