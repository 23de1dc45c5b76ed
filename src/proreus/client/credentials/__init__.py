"""Credentials tell the apiserver who we are: kubeconfigs, service accounts, plugins."""
