"""HTTPS endpoints: health, metrics, configz."""
