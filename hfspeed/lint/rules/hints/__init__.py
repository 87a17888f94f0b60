"""HFS002 to HFS099: what the author says that is not so."""
