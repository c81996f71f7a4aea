"""What a policy would earn, by recorded episodes alone."""
