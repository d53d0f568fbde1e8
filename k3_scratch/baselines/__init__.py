"""What K3's parts are compared with: other mixers, feed-forward parts and residuals, one file each, in one frame."""
