"""Who we are: kubeconfigs, service accounts, credential plugins."""
