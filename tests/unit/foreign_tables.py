# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables and sets as nft, iptables-save, ebtables-save and ipset save print those of Kubernetes and of firewalls."""

from __future__ import annotations

KUBE_PROXY = """\
table ip kube-proxy {
    comment "rules for kube-proxy"

    set cluster-ips {
        type ipv4_addr
        comment "Active ClusterIPs"
        elements = { 10.96.0.1, 10.96.0.10 }
    }

    map no-endpoint-services {
        type ipv4_addr . inet_proto . inet_service : verdict
        comment "vmap to drop or reject packets to services with no endpoints"
        elements = { 10.96.88.1 . tcp . 80 comment "web/shop:http" : goto reject-chain }
    }

    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.1 . tcp . 443 : goto service-2QRHZV4L-default/kubernetes/tcp/https,
                10.96.0.10 . udp . 53 : goto service-FY5PMXPG-kube-system/kube-dns/udp/dns }
    }

    chain nat-postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        meta mark & 0x00004000 == 0x00004000 jump masquerading
    }

    set affinity {
        type ipv4_addr
        size 65535
        flags dynamic,timeout
        timeout 3h
    }

    chain mark-for-masquerade {
        meta mark set meta mark | 0x00004000
    }

    chain masquerading {
        meta mark set meta mark ^ 0x00004000
        masquerade fully-random
    }

    chain nat-prerouting {
        type nat hook prerouting priority dstnat - 10; policy accept;
        ip daddr . meta l4proto . th dport vmap @service-ips
        fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap { tcp . 30080 : goto reject-chain }
    }

    chain reject-chain {
        reject with icmp host-unreachable
    }

    chain service-2QRHZV4L-default/kubernetes/tcp/https {
        ip daddr 10.96.0.1 tcp dport 443 ip saddr != 10.244.0.0/16 jump mark-for-masquerade
        numgen random mod 1 vmap { 0 : goto endpoint-IHPCXQTU-default/kubernetes/tcp/https__172.18.0.2/6443 }
    }

    chain service-FY5PMXPG-kube-system/kube-dns/udp/dns {
    }

    chain endpoint-IHPCXQTU-default/kubernetes/tcp/https__172.18.0.2/6443 {
        ip saddr 172.18.0.2 jump mark-for-masquerade
        update @affinity { ip saddr timeout 3h } meta l4proto tcp dnat to 172.18.0.2:6443
    }
}
"""
OTHERS = """\
# Warning: table ip nat is managed by iptables-nft, do not touch!
table ip nat { # handle 3
    set cali40all-hosts-net {
        type ipv4_addr
        flags interval
        elements = { 192.0.2.0/24 }
    }
    chain cali-fw-cali12345 {
    }
    chain PREROUTING {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local counter packets 0 bytes 0 jump DOCKER
    }
    chain DOCKER {
        iifname "docker0" counter packets 0 bytes 0 return
        iifname != "docker0" meta l4proto tcp tcp dport 8080 counter packets 1 bytes 60 dnat to 172.17.0.2:80
        oifname "cni*" ip saddr @cali40all-hosts-net counter packets 0 bytes 0 jump cali-fw-cali12345 # handle 7
        meta skuid 1337 tcp flags syn / fin,syn,rst,ack counter comment "istio \\ {};#"
    }
}
table ip6 filter {
    counter hits {
        packets 0 bytes 0
    }
    quota much {
        over 25 mbytes
    }
    limit few {
        rate 10/second burst 5 packets
    }
    chain PREROUTING {
        type nat hook prerouting priority dstnat; policy accept;
        ip6 daddr fd00::1-fd00::ff tcp dport 1024-65535 dnat to [fd00::2]:443
    }
    chain FORWARD {
        type filter hook forward priority filter + 10; policy drop;
        ct state { established, related } accept
        icmpv6 type { nd-neighbor-solicit, nd-router-advert } ip6 hoplimit 255 accept
        @th,16,16 { 80, 443 } limit rate over 1 mbytes/second drop
        meta mark & 0x00000f00 == 0x00000100 log prefix "x; include " group 2 counter name "hits" reject with tcp reset
    }
}
table inet firewalld {
    flags owner,persist

    chain raw_PREROUTING {
        type filter hook prerouting priority raw + 10; policy accept;
        meta nfproto ipv6 fib saddr . mark . iif oif missing drop
    }
}
"""
# Objects for which a kernel needs modules or devices that it may lack.
OBJECTS = """\
table ip6 objects {
    ct helper ftp-standard {
        type "ftp" protocol tcp
        l3proto ip6
    }
    ct timeout slow {
        protocol tcp
        l3proto ip6
        policy = { established : 2m3s, close : 12s }
    }
    secmark label {
        "system_u:object_r:ssh_server_packet_t:s0"
    }
    synproxy guard {
        mss 1460
        wscale 7
        timestamp sack-perm
    }
    flowtable fast {
        hook ingress priority filter
        devices = { eth0, eth1 }
    }
}
"""
RULESET = KUBE_PROXY + OTHERS + OBJECTS

SAVED = """\
*mangle
:PREROUTING ACCEPT [0:0]
:cali-PREROUTING - [0:0]
:ISTIO_DIVERT - [0:0]
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
[12:34] -A cali-PREROUTING -m mark --mark 0x10000/0x10000 -m comment --comment "it\\'s \\"quoted\\" \\\\ -M" -j RETURN
-A ISTIO_DIVERT -j MARK --set-xmark 0x539/0xffffffff
-A PREROUTING ! -i eth0 -p tcp -m socket --transparent -j TPROXY --on-port 15006 --on-ip 127.0.0.1 --tproxy-mark 0x539/0xffffffff
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46 - [0:0]
:KUBE-SEP-SNA2Q - [0:0]
:CILIUM_POST_nat - [0:0]
:DOCKER - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https" -m tcp --dport 443 -j KUBE-SVC-NPX46
-A KUBE-SVC-NPX46 -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-SNA2Q
-A KUBE-SEP-SNA2Q -s 172.18.0.2/32 -m recent --set --name KUBE-SEP-SNA2Q --mask 255.255.255.255 --rsource
-A KUBE-SEP-SNA2Q -p tcp -m tcp -j DNAT --to-destination 172.18.0.2:6443
-A CILIUM_POST_nat -s 10.0.0.0/24 -m set --match-set cilium_node_set_v4 dst -m comment --comment exclude -j ACCEPT
-A CILIUM_POST_nat ! -d 10.0.0.0/24 ! -o cilium_+ -m policy --dir out --pol none -j MASQUERADE --random-fully
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
-A PREROUTING -p tcp -m u32 --u32 "0x0>>0x16&0x3c@0x8=0x1" -m string --string "GET /" --algo bm -j NFLOG --nflog-prefix "a b"
COMMIT
"""

BRIDGED = """\
*nat
:PREROUTING ACCEPT
-A PREROUTING -p ARP -i eth0 --arp-op Request -j arpreply --arpreply-mac 12:34:56:78:9a:bc --arpreply-target DROP
-A PREROUTING -p IPv4 -i ! eth0 --log-level notice --log-prefix "x" -j dnat --to-dst 02:00:00:00:00:01 --dnat-target ACCEPT
"""

SETS = """\
create a hash:net,iface family inet6 hashsize 1024 maxelem 65536 timeout 5 counters comment bucketsize 12 initval 0x1234abcd
add a fd00::/64,physdev:eth0 timeout 0 packets 0 bytes 0 comment "x -f /y" nomatch
create b list:set size 8
add b a
create c bitmap:port range 0-1023
add c 22-25
create d hash:ip,port,net family inet
add d 10.0.0.1,tcp:8080,10.1.0.0/16
"""
