# frozen_string_literal: true

require_relative 'http'

# Client of several servers of the same service, in round-robin order. A server that does not answer is skipped.
class Backends
  class Unavailable < StandardError; end

  PAUSE = 0.05

  # @param timeout  seconds to retry while no server answers; a restart of a listener takes far less
  def initialize(addresses, port, timeout:)
    @addresses = addresses
    @port = port
    @timeout = timeout
    @next = 0
    @lock = Mutex.new
  end

  # Returns the address of the server that answered, and its response.
  def get(path)
    deadline = now + @timeout
    loop do
      failures = rotation.map do |address|
        response = Http.get(address, @port, path)
        return [address, response] if response.status < 500

        "#{address}: #{response.body.strip}"
      rescue SystemCallError, SocketError, IOError, KeyError, Timeout::Error => e
        "#{address}: #{e.message}"
      end
      raise Unavailable, failures.join('; ') if now > deadline

      sleep PAUSE
    end
  end

  private

  # All addresses. Each call starts one address later than the previous call.
  def rotation
    @lock.synchronize { @addresses.rotate((@next += 1) - 1) }
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
