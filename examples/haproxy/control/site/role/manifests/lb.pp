# A load balancer.
class role::lb {
  include profile::lb
}
