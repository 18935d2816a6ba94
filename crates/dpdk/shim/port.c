// Ports: what they are, how they are set up, their link, their counters.
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>

#include "shim.h"

_Static_assert(sizeof(struct qd_port_info) == 3 * QD_NAME + 3 * 8 + 6 * 4 + 10 * 2 + 4, "as the Rust side has it");
_Static_assert(sizeof(struct qd_port_config) == 3 * 8 + 4 + 4 * 2 + 4 + 4 + 4, "as the Rust side has it");
_Static_assert(sizeof(struct qd_link) == 16, "as the Rust side has it");
_Static_assert(RTE_ETH_TX_OFFLOAD_MULTI_SEGS == 1 << 15 && RTE_ETH_RX_OFFLOAD_SCATTER == 1 << 13, "as the Rust side has it");
_Static_assert(RTE_ETH_TX_OFFLOAD_UDP_CKSUM == 4 && RTE_ETH_TX_OFFLOAD_TCP_CKSUM == 8, "as the Rust side has it");
_Static_assert(RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE == 1 << 16, "as the Rust side has it");

static void copy_name(char *to, const char *from)
{
	snprintf(to, QD_NAME, "%s", from ? from : "");
}

// The port of that name, or a negative error number.
int qd_port_by_name(const char *name)
{
	uint16_t port;
	int result = rte_eth_dev_get_port_by_name(name, &port);

	return result < 0 ? result : port;
}

int qd_port_info(uint16_t port, struct qd_port_info *to)
{
	struct rte_eth_dev_info info;
	char name[RTE_ETH_NAME_MAX_LEN] = "";
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	memset(to, 0, sizeof(*to));
	rte_eth_dev_get_name_by_port(port, name);
	copy_name(to->device, name);
	copy_name(to->driver, info.driver_name);
	if (info.device != NULL && rte_dev_bus(info.device) != NULL)
		copy_name(to->bus, rte_bus_name(rte_dev_bus(info.device)));
	to->rx_offloads = info.rx_offload_capa;
	to->tx_offloads = info.tx_offload_capa;
	to->rss = info.flow_type_rss_offloads;
	to->max_frame = info.max_rx_pktlen;
	to->min_mtu = info.min_mtu;
	to->max_mtu = info.max_mtu;
	to->speeds = info.speed_capa;
	to->flags = info.dev_flags ? *info.dev_flags : 0;
	to->numa = rte_eth_dev_socket_id(port);
	to->rx_queues = info.max_rx_queues;
	to->tx_queues = info.max_tx_queues;
	to->rx_min = info.rx_desc_lim.nb_min;
	to->rx_max = info.rx_desc_lim.nb_max;
	to->rx_align = info.rx_desc_lim.nb_align;
	to->tx_min = info.tx_desc_lim.nb_min;
	to->tx_max = info.tx_desc_lim.nb_max;
	to->tx_align = info.tx_desc_lim.nb_align;
	to->default_rx = info.default_rxportconf.ring_size;
	to->default_tx = info.default_txportconf.ring_size;
	return 0;
}

// Sets a stopped port up. `config` becomes what the device makes of it; `step` says what failed.
int qd_port_open(uint16_t port, struct qd_port_config *config, const char **step)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	*step = "asking for its capabilities";
	if (result < 0)
		return result;
	conf.rxmode.mtu = config->mtu;
	conf.rxmode.offloads = config->rx_offloads & info.rx_offload_capa;
	conf.txmode.offloads = config->tx_offloads & info.tx_offload_capa;
	if (config->rx_queues > 1 && (config->rss & info.flow_type_rss_offloads) != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = config->rss & info.flow_type_rss_offloads;
	}
	conf.intr_conf.lsc = config->link_events;
	conf.intr_conf.rmv = config->removal_events;
	conf.intr_conf.rxq = config->rx_interrupts;
	config->rx_offloads = conf.rxmode.offloads;
	config->tx_offloads = conf.txmode.offloads;
	config->rss = conf.rx_adv_conf.rss_conf.rss_hf;

	*step = "configuring";
	result = rte_eth_dev_configure(port, config->rx_queues, config->tx_queues, &conf);
	if (result < 0 && config->rx_interrupts) {
		// Not every device that could be asked for them has them.
		config->rx_interrupts = 0;
		conf.intr_conf.rxq = 0;
		result = rte_eth_dev_configure(port, config->rx_queues, config->tx_queues, &conf);
	}
	if (result < 0)
		return result;
	*step = "setting the size of its rings";
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &config->rx_descriptors, &config->tx_descriptors);
	if (result < 0)
		return result;
	*step = "setting up a receive queue";
	for (uint16_t q = 0; q < config->rx_queues; q++) {
		struct rte_eth_rxconf queue = info.default_rxconf;
		queue.offloads = conf.rxmode.offloads;
		result = rte_eth_rx_queue_setup(port, q, config->rx_descriptors, config->numa, &queue,
						config->copying ? qd_copying_pool : qd_pool);
		if (result < 0)
			return result;
	}
	*step = "setting up a transmit queue";
	for (uint16_t q = 0; q < config->tx_queues; q++) {
		struct rte_eth_txconf queue = info.default_txconf;
		queue.offloads = conf.txmode.offloads;
		result = rte_eth_tx_queue_setup(port, q, config->tx_descriptors, config->numa, &queue);
		if (result < 0)
			return result;
	}
	// Routers listen to many groups, and sort them out in software.
	rte_eth_allmulticast_enable(port);
	return 0;
}

int qd_port_start(uint16_t port)
{
	return rte_eth_dev_start(port);
}

int qd_port_stop(uint16_t port)
{
	return rte_eth_dev_stop(port);
}

// Closes a stopped port; with `detach` its device is given up too.
int qd_port_close(uint16_t port, int detach)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);
	struct rte_device *device = result < 0 ? NULL : info.device;

	result = rte_eth_dev_close(port);
	if (detach && device != NULL)
		result = rte_dev_remove(device);
	return result;
}

static int on_event(uint16_t port, enum rte_eth_event_type type, void *arg, void *result)
{
	qd_event_fn event = (qd_event_fn)arg;

	(void)result;
	switch (type) {
	case RTE_ETH_EVENT_INTR_LSC:
		event(port, QD_EVENT_LINK);
		break;
	case RTE_ETH_EVENT_INTR_RMV:
		event(port, QD_EVENT_GONE);
		break;
	case RTE_ETH_EVENT_INTR_RESET:
		event(port, QD_EVENT_RESET);
		break;
	default:
		break;
	}
	return 0;
}

// Has `event` called, on a thread of DPDK's, when the link changes or the device goes.
int qd_port_watch(uint16_t port, qd_event_fn event)
{
	const enum rte_eth_event_type types[] = {RTE_ETH_EVENT_INTR_LSC, RTE_ETH_EVENT_INTR_RMV, RTE_ETH_EVENT_INTR_RESET};

	for (unsigned i = 0; i < RTE_DIM(types); i++) {
		int result = rte_eth_dev_callback_register(port, types[i], on_event, (void *)event);
		if (result < 0)
			return result;
	}
	return 0;
}

int qd_port_link(uint16_t port, struct qd_link *to)
{
	struct rte_eth_link link;
	int result = rte_eth_link_get_nowait(port, &link);

	memset(to, 0, sizeof(*to));
	if (result < 0)
		return result;
	to->up = link.link_status;
	to->full_duplex = link.link_duplex;
	to->autonegotiated = link.link_autoneg;
	if (link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
		to->bits_per_second = (uint64_t)link.link_speed * 1000000;
	return 0;
}

int qd_port_set_link(uint16_t port, int up)
{
	return up ? rte_eth_dev_set_link_up(port) : rte_eth_dev_set_link_down(port);
}

int qd_port_mac(uint16_t port, uint8_t mac[6])
{
	return rte_eth_macaddr_get(port, (struct rte_ether_addr *)mac);
}

int qd_port_set_mac(uint16_t port, const uint8_t mac[6])
{
	struct rte_ether_addr address;

	memcpy(&address, mac, sizeof(address));
	return rte_eth_dev_default_mac_addr_set(port, &address);
}

int qd_port_set_promiscuous(uint16_t port, int on)
{
	return on ? rte_eth_promiscuous_enable(port) : rte_eth_promiscuous_disable(port);
}

int qd_port_promiscuous(uint16_t port)
{
	return rte_eth_promiscuous_get(port);
}

int qd_port_mtu(uint16_t port)
{
	uint16_t mtu;
	int result = rte_eth_dev_get_mtu(port, &mtu);

	return result < 0 ? result : mtu;
}

int qd_port_set_mtu(uint16_t port, uint16_t mtu)
{
	return rte_eth_dev_set_mtu(port, mtu);
}

// All counters by name: the usual ones first, then the driver's own.
int qd_port_counters(uint16_t port, qd_counter_fn counter, void *to)
{
	int n = rte_eth_xstats_get_names(port, NULL, 0), result = 0;
	struct rte_eth_xstat_name *names;
	struct rte_eth_xstat *values;

	if (n <= 0)
		return n;
	names = calloc((size_t)n, sizeof(*names));
	values = calloc((size_t)n, sizeof(*values));
	if (names == NULL || values == NULL) {
		result = -ENOMEM;
	} else if (rte_eth_xstats_get_names(port, names, (unsigned)n) > n || (result = rte_eth_xstats_get(port, values, (unsigned)n)) > n) {
		result = -EAGAIN;
	} else {
		for (int i = 0; i < result; i++) {
			if (values[i].id < (uint64_t)n)
				counter(to, names[values[i].id].name, values[i].value);
		}
	}
	free(names);
	free(values);
	return result;
}

int qd_port_clear_counters(uint16_t port)
{
	return rte_eth_xstats_reset(port);
}

// How the driver sends or receives on its first queue.
int qd_port_mode(uint16_t port, int tx, char *text, unsigned len)
{
	struct rte_eth_burst_mode mode;
	int result = tx ? rte_eth_tx_burst_mode_get(port, 0, &mode) : rte_eth_rx_burst_mode_get(port, 0, &mode);

	if (result == 0)
		snprintf(text, len, "%s", mode.info);
	return result;
}

const char *qd_offload_name(int tx, uint64_t flag)
{
	return tx ? rte_eth_dev_tx_offload_name(flag) : rte_eth_dev_rx_offload_name(flag);
}

// Makes an epoll set readable when a queue has an interrupt.
int qd_queue_watch(uint16_t port, uint16_t queue, int epoll)
{
	return rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, RTE_INTR_EVENT_ADD, NULL);
}

int qd_queue_arm(uint16_t port, uint16_t queue, int on)
{
	int result = on ? rte_eth_dev_rx_intr_enable(port, queue) : rte_eth_dev_rx_intr_disable(port, queue);

	// Drivers whose event is the device's own descriptor have nothing to switch.
	return result == -ENOTSUP ? 0 : result;
}

// Takes in what an epoll set tells of; how many events there were.
int qd_queue_drain(int epoll)
{
	struct rte_epoll_event events[4];

	return rte_epoll_wait(epoll, events, RTE_DIM(events), 0);
}

// Whether something waits behind a queue's event descriptor. net_tap needs it: its event comes once for what arrives, but its
// receive function gives nothing until a signal handler, on whatever thread, has run too. Where the event is a counter, it has
// been read by then.
int qd_queue_waits(uint16_t port, uint16_t queue)
{
	struct pollfd event = { .fd = rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue), .events = POLLIN };

	return event.fd >= 0 && poll(&event, 1, 0) > 0 && (event.revents & POLLIN) != 0;
}
