"""POPGym (Morad et al., 2023): the 39 tasks of the paper's summary figure, and three more."""
