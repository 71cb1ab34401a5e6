"""Acts one step at a time: proposes what is due, probes it, learns from the result and updates the advice."""
