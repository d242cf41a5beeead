# frozen_string_literal: true

require_relative 'http'

# Several addresses that answer the same, asked in turn. One that does not answer is passed over.
class Backends
  class Unavailable < StandardError; end

  PAUSE = 0.05

  # @param patience  seconds to go on trying while none answers: a listener that is being restarted is back in far less
  def initialize(addresses, port, patience:)
    @addresses = addresses
    @port = port
    @patience = patience
    @next = 0
    @lock = Mutex.new
  end

  # Returns the address that answered, and its answer.
  def get(path)
    give_up = now + @patience
    loop do
      failures = rotation.map do |address|
        response = Http.get(address, @port, path)
        return [address, response] if response.status < 500

        "#{address}: #{response.body.strip}"
      rescue SystemCallError, SocketError, IOError, KeyError, Timeout::Error => e
        "#{address}: #{e.message}"
      end
      raise Unavailable, failures.join('; ') if now > give_up

      sleep PAUSE
    end
  end

  private

  # All addresses; each call begins with the one after that with which the last call began.
  def rotation
    @lock.synchronize { @addresses.rotate((@next += 1) - 1) }
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
