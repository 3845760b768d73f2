"""The networks of AMAGO: timestep encoder, sequence models, actor and critics."""
