"""The embedded cluster: an apiserver emulator and fake kubelets."""
