"""Acts in turn: what is due is proposed, probed, learned from and advised."""
