"""What several tests share: small networks and models, hostile files, the command line in this process."""
