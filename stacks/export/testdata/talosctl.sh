talosctl config endpoint 10.0.0.11 10.0.0.12
talosctl config node 10.0.0.11 10.0.0.12 10.0.0.21 fd00::31
# no address is known of talos-cp-03
